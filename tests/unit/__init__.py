"""Tests without a server, a JVM or a network."""
