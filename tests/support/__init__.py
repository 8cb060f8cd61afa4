"""What tests are made of: runs, graphs and files by hand, slow references, and what `make` runs of the tests."""
