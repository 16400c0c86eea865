"""(1) Poll: find what TiCDC has written, and what a bucket or an export is.

* `reader`: the poll. Its parts: `inventory` (what is listed), `known_files` (what the next listing
  may skip), `schema_file`, `metadata`, `paths`.
* `inspector`: the settings that fit a bucket's files, by `survey`, `csv_options` and
  `table_statements`.
* `export`: what Dumpling or mydumper wrote, as definitions and data files in order.
* `stores/`: S3, GCS, Azure and folders as a `Storage`; nothing else here touches the outside.

Takes: listings and small files of a `Storage`. Gives: new schema files with their content, new data
files, and the bucket's checkpoint.
"""
