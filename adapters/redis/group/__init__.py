"""A gateway as a member of its group: it joins, admits others, and sends lost writes again."""
