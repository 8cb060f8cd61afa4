"""What each rule is for: real and simulated runs with one rule left out in turn."""
