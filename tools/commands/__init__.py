"""The commands, one module each: arguments in, an exit status out. `main` of each is what the package installs."""
