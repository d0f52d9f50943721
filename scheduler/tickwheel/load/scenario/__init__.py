"""What load is simulated: scenario files, and the plan made of one."""
