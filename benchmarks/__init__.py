"""What only developers run, from the clone: speed and memory, how right graphs are, what each rule is for."""
