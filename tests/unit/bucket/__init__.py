"""The room `exports`: names, metadata, structures and what is refused."""
