"""(2) Plan: what must happen, in which order?"""
