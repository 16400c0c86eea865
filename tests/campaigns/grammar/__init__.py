"""Statements made from TiDB's grammar: every option in every place where it may stand, and what each server makes of it."""
