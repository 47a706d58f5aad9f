"""ptxas and nvcc: found, run, and proven to have applied an ACF by the code that came out."""
