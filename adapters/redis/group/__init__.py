"""A gateway as a member of its group: how it joins, lets others in, and sends again."""
