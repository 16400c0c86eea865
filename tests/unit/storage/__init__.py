"""Tests of the poll stage without any storage but memory."""
