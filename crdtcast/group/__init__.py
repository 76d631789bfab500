"""One member of a group: how it joins, what it keeps, how it lets others in, and how it leaves."""
