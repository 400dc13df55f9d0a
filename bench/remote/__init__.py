"""Measures a mount of a bucket beside other programs that mount one, and beside bare requests: `scripts/bench_remote`.

data.py has the server and what lies in it, bare.py requests without any mount, mounts.py the programs, rows.py a function
for each row of the table. proxy.rs stands before the server and makes it as far away as a row says.
"""
