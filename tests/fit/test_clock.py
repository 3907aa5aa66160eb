"""How far a fit is, and the time that is left."""

import pytest

from happier.fit.clock import Clock


class Told:
    """A clock that is set by hand, and what was told at each time."""

    def __init__(self, **guesses):
        self.time = 100.0
        self.moments = []
        self.clock = Clock(self.moments.append, lambda: self.time)
        self.clock.plan(guesses)

    @property
    def last(self):
        return self.moments[-1]


def test_the_guess_gives_way_to_the_pace():
    told = Told(images=60.0, train=400.0, report=40.0)
    told.clock("images", 0, 10)
    assert told.last.seconds_left == 500
    told.time += 5
    told.clock("train", 0, 100)  # the images were there
    assert told.last.seconds_left == 440
    told.time += 100
    told.clock("train", 50, 100)  # twice as fast as guessed
    assert told.last.seconds_left == pytest.approx(100 + 40)
    assert told.last.fraction == pytest.approx(105 / 245)
    assert (told.last.done, told.last.total) == (50, 100)
    told.time += 100
    told.clock("report", 0, 0)
    assert told.last.seconds_left == pytest.approx(40)
    told.time += 30
    told.clock("report", 0, 0)  # cannot be counted: the guess runs down
    assert told.last.seconds_left == pytest.approx(10)
    told.time += 30
    told.clock("report", 0, 0)
    assert told.last.seconds_left == 0
    assert told.last.fraction == 1


def test_what_was_done_before_does_not_count_as_pace():
    told = Told(train=400.0)
    told.clock("train", 50, 100)
    assert told.last.seconds_left == 200
    told.time += 50
    told.clock("train", 75, 100)
    assert told.last.seconds_left == pytest.approx(50)


def test_early_steps_hardly_move_the_estimate():
    told = Told(train=400.0)
    told.clock("train", 0, 1000)
    told.time += 60  # starting up took a minute
    told.clock("train", 1, 1000)
    assert told.last.seconds_left < 1100


def test_a_stage_that_was_not_planned_leaves_the_others():
    told = Told(train=400.0)
    told.clock("fetching", 0, 3)
    assert told.last.seconds_left == 400
    told.clock("train", 0, 100)
    assert told.last.seconds_left == 400
