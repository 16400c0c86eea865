"""Every kind of statement that a bucket can hold, as one small story each, and what each server makes of it."""
