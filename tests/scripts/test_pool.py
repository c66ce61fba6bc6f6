from _pool import Crash, isolated_map
from fakes import die_of


def test_a_task_that_kills_its_process_is_told_from_those_beside_it():
    names = ["a", "b", "deadly1", "c", "deadly2", "deadly3", "d", "e", "f", "g"]
    for num_processes in (1, 2):
        found = list(isolated_map(die_of, ((name,) for name in names), num_processes))
        assert [None if isinstance(result, Crash) else result for result in found] == [
            None if name.startswith("deadly") else name for name in names
        ]
