"""What a job found, as a record, and the log that all records are merged into."""
