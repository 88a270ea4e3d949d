"""Any bytes end in a configuration, or in faults that name the place and no secret."""

from tests.fuzz.mutation import CONFIGS, malformed
from tests.fuzz.oracles import a_config
from tests.unit.cases import cases
from tests.unit.config.reading import faults_in_text

INPUTS = 300
SEED = 9


def test_any_file_ends_in_a_configuration_or_in_faults_with_a_place_and_without_a_secret() -> None:
    for each in malformed(SEED, CONFIGS, INPUTS):
        a_config(each.data)


@cases("text")
def test_what_is_said_of_half_a_character_can_be_written(text: str) -> None:
    faults = faults_in_text(text)
    assert faults
    for path, message in faults:
        assert (path + message).encode()
