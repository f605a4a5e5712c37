"""Many runs as one: studies, their plan, the engines that carry it out, and what comes out as tables and a report."""
