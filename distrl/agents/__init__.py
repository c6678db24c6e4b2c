"""One class for each algorithm, one method for each job."""
