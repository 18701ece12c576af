"""What the book adds to Sphinx. conf.py puts this package on the path and names its modules."""
