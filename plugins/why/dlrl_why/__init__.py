"""How a job is, and what happened to it, in one sentence, printed from the incidents of its record."""
