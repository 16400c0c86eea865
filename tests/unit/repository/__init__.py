"""Tests of the repository itself and of what its tests stand on."""
