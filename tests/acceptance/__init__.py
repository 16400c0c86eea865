"""The program as its users start it: a process, its signals, its exit codes, what it says."""
