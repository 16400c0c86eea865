-- The rights of docs/operations/running.md, for the one database that the recorded bucket has. The image of MariaDB has made the account.
GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP, INDEX, REFERENCES, CREATE VIEW, SHOW VIEW ON shop.* TO app@'%';
GRANT ALL ON storage_consumer.* TO app@'%';
