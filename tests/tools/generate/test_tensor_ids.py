"""Arguments in generated host traces are as varied as in recorded ones, and numbers are reused as addresses are."""
