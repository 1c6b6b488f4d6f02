"""What happened to a job, in one sentence, printed from the incidents of its record."""
