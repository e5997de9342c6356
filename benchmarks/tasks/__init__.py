"""Tasks with a known answer, by family; `register.py` lists them, `run.py` runs them."""
