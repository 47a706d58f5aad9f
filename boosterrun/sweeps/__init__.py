"""Jobs: in which order, what of them is done already, and what is told of them."""
