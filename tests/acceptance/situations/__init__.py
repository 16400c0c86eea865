"""The situations of docs/operations/situations, each made for real: what is seen of it, and that the command it names cures it."""
