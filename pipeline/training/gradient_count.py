"""The count of gradients by which a chief asks each worker for one after the other."""


class GradientCount:
    """Counts the gradients that workers were asked for, of all steps so far.

    Each was used, has come for the step that is under way, was late, or is still being computed.
    With four workers, three of whose gradients a step needs:

        begin_step() -> 4                  ask all
        look(come=3, computed=3) -> 0      enough have come; one is still being computed
        end_step(used=3)
        begin_step() -> 3                  ask the others
        look(come=0, computed=4) -> 1      the fourth has come, too late: that worker is free

    Attributes:
      late: gradients that came after their step, as far as it was seen.
    """

    def __init__(self, *, needed: int, workers: int) -> None:
        """Begins at 0.

        Args:
          needed: gradients of a step.
          workers: workers, as many or more.
        """
        self._needed, self._workers = needed, workers
        self._asked = self._used = self.late = 0

    def begin_step(self) -> int:
        """Begins a step, and returns for how many gradients to ask.

        They are as many as are needed, or more: one of each worker that is not busy.
        """
        busy = max(0, self._asked - self._used - self.late)
        asked = max(self._needed, self._workers - busy)
        self._asked += asked
        return asked

    def look(self, *, come: int, computed: int) -> int:
        """Counts what was late since the last look, and returns for how many more to ask.

        Args:
          come: gradients that have come for the step.
          computed: gradients of all steps, without some of the last ones.
        """
        late = max(self.late, computed - self._used - come)
        more = late - self.late if come < self._needed else 0  # or the next step asks
        self.late = late
        self._asked += more
        return more

    def end_step(self, *, used: int) -> None:
        """Ends a step that has used so many gradients."""
        self._used += used

    def nobody_is_busy(self, *, computed: int) -> None:
        """Begins anew, before a step, where no gradient is being computed.

        What a worker had done before it was lost counts twice in what was computed, and would look
        for ever like a worker that is free.
        """
        self.late = computed - self._used
        self._asked = computed
