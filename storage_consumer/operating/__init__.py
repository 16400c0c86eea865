"""What an operator asks of a target's state and says to it, beside a running consumer: the commands `ddl`, `table` and `history`."""
