"""The GPUs of this machine: what they say, who may use which, and whether they still answer."""
