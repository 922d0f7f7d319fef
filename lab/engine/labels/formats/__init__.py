"""Files of labels: the lab's own, and those of published collections."""
