"""Generated calls against the served product: `python -m tests.fuzz`, or `make fuzz`."""
