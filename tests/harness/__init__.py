"""What tests stand on: private servers, recorded buckets, the program as a process, and comparisons of databases."""
