"""One run: the job, how weights are updated, which batches a step sees, the one loop, and passes that change nothing."""
