"""Parts of the program against real servers, each private to the tests."""
