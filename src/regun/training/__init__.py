"""One run: the job, how weights are updated, which batches a step sees, the one loop, passes that change nothing."""
