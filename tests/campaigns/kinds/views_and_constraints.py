"""Views, foreign keys and checks."""

from __future__ import annotations

from tests.campaigns.kinds.databases_and_tables import ALL, OTHER, THREE
from tests.campaigns.kinds.story import BEFORE, CREATE_DATABASE, TWO, Ddl, Kind, Rows, altered, created, lines

_VIEW = "CREATE ALGORITHM = UNDEFINED DEFINER = CURRENT_USER SQL SECURITY DEFINER VIEW "
VIEWS = [
    Kind(
        name="CREATE VIEW",
        story=[
            CREATE_DATABASE,
            created(),
            TWO,
            Ddl(f"{_VIEW}`w` AS SELECT `id`,`v`*2 AS `x` FROM `t`", 21, "w"),
            THREE,
        ],
        ends={"t": ALL, "w": [("1", "20"), ("2", "40"), ("3", "60")]},
        has=["view w"],
    ),
    Kind(
        name="CREATE OR REPLACE VIEW",
        story=[
            *(CREATE_DATABASE, created(), TWO, Ddl(f"{_VIEW}`w` AS SELECT `id` FROM `t`", 21, "w", setup=True)),
            Ddl(
                _VIEW.replace("CREATE", "CREATE OR REPLACE") + "`w` AS SELECT `s`,_UTF8MB4'k' AS `k` FROM `t`", 21, "w"
            ),
        ],
        ends={"t": BEFORE, "w": [("one", "k"), ("two", "k")]},
        on={"mariadb": "rewritten: string collation", "mysql": "rewritten: string collation"},
    ),
    Kind(
        name="CREATE VIEW over another database",
        story=[
            *(CREATE_DATABASE, Ddl("CREATE DATABASE `{db}_2`", 1, "", setup=True, database=OTHER), created(), TWO),
            Ddl(
                f"{_VIEW}`{{db}}_2`.`w` AS SELECT `{{db}}`.`t`.`id` AS `id` FROM `{{db}}`.`t`", 21, "w", database=OTHER
            ),
        ],
        ends={"t": BEFORE, "_2.w": [("1",), ("2",)]},
    ),
    Kind(
        name="DROP VIEW of several",
        story=[
            *(CREATE_DATABASE, created(), TWO),
            *(Ddl(f"{_VIEW}`{one}` AS SELECT `id` FROM `t`", 21, one, setup=True) for one in ("w", "x")),
            *(Ddl(f"DROP VIEW `{{db}}`.`{one}`", 24, one) for one in ("w", "x")),
        ],
        ends={"t": BEFORE},
        lacks=["view w", "view x"],
    ),
    Kind(
        name="ALTER TABLE under a view",
        story=[
            *(CREATE_DATABASE, created(), TWO, Ddl(f"{_VIEW}`w` AS SELECT `id` FROM `t`", 21, "w", setup=True)),
            Ddl("ALTER TABLE `t` DROP COLUMN `v`", 6, "t", ["id! INT", "s VARCHAR(20)"]),
            Rows("t", lines((3, "three"))),
        ],
        ends={"t": [("1", "one"), ("2", "two"), ("3", "three")], "w": [("1",), ("2",), ("3",)]},
    ),
]
_PARENT = created("(`id` INT PRIMARY KEY,`x` INT,INDEX `ix`(`x`))", ["id! INT", "x INT"], table="p")
_CHILD = "(`id` INT PRIMARY KEY,`v` INT,`s` VARCHAR(20),INDEX `iv`(`v`))"
_PARENTS = Rows("p", lines((10, 1), (20, 2), (21, 2)))

CONSTRAINTS = [
    Kind(
        name="CREATE TABLE with a FOREIGN KEY",
        story=[
            *(CREATE_DATABASE, _PARENT, _PARENTS),
            created(
                "(`id` INT PRIMARY KEY,`v` INT,`s` VARCHAR(20),CONSTRAINT `fk` FOREIGN KEY (`v`) REFERENCES `p`(`id`) ON DELETE CASCADE)",
                setup=False,
            ),
            TWO,
        ],
        ends={"t": BEFORE},
        has=["t foreign key fk"],
    ),
    Kind(
        name="ADD FOREIGN KEY",
        story=[
            *(CREATE_DATABASE, _PARENT, _PARENTS, created(_CHILD), TWO),
            Ddl("ALTER TABLE `t` ADD CONSTRAINT `fk` FOREIGN KEY (`v`) REFERENCES `{db}`.`p`(`id`)", 9),
            Rows("t", lines((2, 21, "TWO")), "U"),
        ],
        ends={"t": [("1", "10", "one"), ("2", "21", "TWO")]},
        has=["t foreign key fk"],
    ),
    Kind(
        name="ADD FOREIGN KEY on a key that is not unique",
        story=[
            *(CREATE_DATABASE, _PARENT, _PARENTS, created(_CHILD), Rows("t", lines((1, 1, "one")))),
            Ddl("ALTER TABLE `t` ADD CONSTRAINT `fk` FOREIGN KEY (`v`) REFERENCES `p`(`x`)", 9),
            Rows("t", lines((2, 2, "two"))),
        ],
        ends={"t": [("1", "1", "one"), ("2", "2", "two")]},
    ),
    Kind(
        name="DROP FOREIGN KEY",
        story=[
            *(CREATE_DATABASE, _PARENT, _PARENTS, created(_CHILD), TWO),
            Ddl("ALTER TABLE `t` ADD CONSTRAINT `fk` FOREIGN KEY (`v`) REFERENCES `p`(`id`)", 9),
            Ddl("ALTER TABLE `t` DROP FOREIGN KEY `fk`", 10),
            THREE,
        ],
        ends={"t": ALL},
        lacks=["t foreign key fk"],
    ),
    Kind(
        name="ADD and DROP FOREIGN KEY without a name",
        story=[
            *(CREATE_DATABASE, _PARENT, _PARENTS, created(_CHILD), created(_CHILD, table="u"), TWO),
            Ddl("ALTER TABLE `u` ADD FOREIGN KEY (`v`) REFERENCES `p`(`id`)", 9, "u"),
            Ddl("ALTER TABLE `t` ADD FOREIGN KEY (`v`) REFERENCES `p`(`id`)", 9),
            Ddl("ALTER TABLE `t` DROP FOREIGN KEY `fk_1`", 10),
            THREE,
        ],
        ends={"t": ALL, "u": []},
        on=dict.fromkeys(("mariadb", "mysql"), "rewritten: foreign key name"),
        has=["mysql? u foreign key u_fk_1"],
        lacks=["t foreign key t_fk_1"],
    ),
    Kind(
        name="CREATE TABLE with FOREIGN KEYs without a name",
        story=[
            *(CREATE_DATABASE, _PARENT, _PARENTS),
            created(
                "(`id` INT PRIMARY KEY,`v` INT,`s` VARCHAR(20),FOREIGN KEY (`v`) REFERENCES `p`(`id`),FOREIGN KEY `ff` (`id`) REFERENCES `p`(`id`))",
                setup=False,
            ),
            Ddl("ALTER TABLE `t` DROP FOREIGN KEY `fk_1`", 10),
            Ddl("ALTER TABLE `t` DROP FOREIGN KEY `ff`", 10),
            TWO,
        ],
        ends={"t": BEFORE},
        on=dict.fromkeys(("mariadb", "mysql"), "rewritten: foreign key name"),
        lacks=["t foreign key t_fk_1", "t foreign key t_ff"],
    ),
    Kind(
        name="one FOREIGN KEY name in two tables",
        story=[
            *(CREATE_DATABASE, _PARENT, _PARENTS, created(_CHILD), created(_CHILD, table="u")),
            Ddl("ALTER TABLE `u` ADD CONSTRAINT `fk` FOREIGN KEY (`v`) REFERENCES `p`(`id`)", 9, "u"),
            Ddl("ALTER TABLE `t` ADD CONSTRAINT `fk` FOREIGN KEY (`v`) REFERENCES `p`(`id`)", 9),
            Rows("t", lines((1, 10, "one"))),
        ],
        ends={"t": [("1", "10", "one")]},
        on=dict.fromkeys(("mariadb", "mysql"), "executed · rewritten: foreign key name"),
        has=["mysql? t foreign key t_fk", "mysql? u foreign key fk"],
    ),
    Kind(
        name="CREATE TABLE with CHECK",
        story=[
            CREATE_DATABASE,
            created(
                "(`id` INT PRIMARY KEY,`v` INT CHECK(`v`>100) ENFORCED,`s` VARCHAR(20),CONSTRAINT `c` CHECK(`id`>100) ENFORCED)",
                setup=False,
            ),
            TWO,
        ],
        ends={"t": BEFORE},
        on=dict.fromkeys(("mariadb", "mysql"), "rewritten: check constraint"),
        lacks=["t check c"],
    ),
    altered(
        "ADD CHECK",
        "ALTER TABLE `t` ADD CONSTRAINT `c` CHECK(`v`>100) ENFORCED",
        5,
        on=dict.fromkeys(("mariadb", "mysql"), "skipped: check constraint"),
    ),
]

KINDS = [*VIEWS, *CONSTRAINTS]
