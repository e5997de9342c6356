"""The paper, as one command: its tables, its figures and its theory, beside what was published."""
