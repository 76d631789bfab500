"""One member of a group: how it joins, what it stores, how it admits others, and how it leaves."""
