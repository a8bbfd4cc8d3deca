"""One module for each command of the command line: `add_arguments(parser)` and `run(args) -> exit status`."""
