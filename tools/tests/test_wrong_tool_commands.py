"""Whatever is typed after ``nero bench``, ``plan``, ``speedrun`` and ``theory``: one line that says why."""

from tests.cli.wrong_commands import (  # noqa: F401
    check_blamed,
    check_refused,
    check_usage,
    each,
    in_folder,
)

USAGE = [
    ("theory wrong:net", "required: --n, --alpha"),
    ("theory wrong:net --n 10", "required: --alpha"),
    ("theory wrong:net --n 1 --alpha 0.1", "--n: '1' must be a whole number"),
    ("theory wrong:net --n 1.5 --alpha 0.1", "--n: '1.5' must be a whole number"),
    ("theory wrong:net --n many --alpha 0.1", "--n: 'many' must be a whole number"),
    ("theory wrong:net --n -5 --alpha 0.1", "--n: '-5' must be a whole number"),
    (f"theory wrong:net --n {'9' * 400} --alpha 0.1", "--n: .* must be a whole number"),
    ("theory wrong:net --n 10 --alpha 4", "--alpha: '4' must be an angle"),
    ("theory wrong:net --n 10 --alpha 0", "--alpha: '0' must be an angle"),
    ("theory wrong:net --n 10 --alpha nan", "--alpha: 'nan' must be an angle"),
    ("theory wrong:net --n 10 --alpha five", "--alpha: 'five' must be an angle"),
    ("theory wrong:net --n 10 --alpha 0.1 --delta 0", "--delta: '0' must be a proportion"),
    ("theory wrong:net --n 10 --alpha 0.1 --delta 2", "--delta: '2' must be a proportion"),
    ("theory wrong:net --n 10 --alpha 0.1 --log-k x", "--log-k: .*'x'"),
    ("plan --mesh pp=2", "--mesh: 'pp' .* must be one of"),
    ("plan --mesh fsdp", "--mesh: 'fsdp' .* AXIS=SIZE"),
    ("plan --mesh fsdp=0", "--mesh: .*fsdp has size 0"),
    ("plan --mesh fsdp=-2", "--mesh: .* AXIS=SIZE"),
    ("plan --mesh fsdp=two", "--mesh: .* AXIS=SIZE"),
    ("plan --mesh fsdp=2,fsdp=4", "--mesh: .*names fsdp twice"),
    ("plan --mesh fsdp=1000000", "--mesh: .*too many"),
    ("plan --mesh fsdp=99999999999999999999", "--mesh: .*too many"),
    (f"plan --mesh fsdp={'9' * 200}", "--mesh: .* AXIS=SIZE"),
    ("plan --mesh ''", "--mesh: .* AXIS=SIZE"),
    ("plan --mesh fsdp=2 tp=2", "unrecognized arguments: tp=2"),
    ("plan --optimizers sgd", "--optimizers: 'sgd' must be one of"),
    ("plan --optimizers nero,", "--optimizers: '' must be one of"),
    ("plan --json .", "--json: '.' is a folder"),
    ("plan --json no/such/folder.json", "--json: there is no folder 'no/such'"),
    ("plan --json wrong.py/plan.json", "--json: there is no folder 'wrong.py'"),
    (f"plan --json {'x' * 5000}.json", "--json: cannot write this file"),
    ("plan --plot no/such/plan.png", "--plot: there is no folder"),
    ("bench --shapes gpt5", "--shapes: 'gpt5' must be one of"),
    ("bench --optimizers lion", "--optimizers: 'lion' must be one of"),
    ("bench --device tpu", "--device: invalid choice: 'tpu'"),
    ("bench --dtype int8", "--dtype: invalid choice: 'int8'"),
    ("bench --threads 0", "--threads: '0' must be a whole number"),
    ("bench --threads 1,x", "--threads: 'x' must be a whole number"),
    ("bench --threads 999999999", "--threads: '999999999' must be a whole number"),
    ("bench --rounds 0", "--rounds: '0' must be a whole number"),
    ("bench --settle-ms -1", "--settle-ms: '-1' must be a number"),
    ("bench --settle-ms 1e300", "--settle-ms: '1e300' must be a number"),
    ("bench --evict-mb nan", "--evict-mb: 'nan' must be a number"),
    ("bench --evict-mb 1e300", "--evict-mb: '1e300' must be a number"),
    ("bench --json .", "--json: '.' is a folder"),
    ("speedrun --output entry.py", "required: --baseline"),
    ("speedrun --baseline wrong.py", "required: --output"),
    ("speedrun --baseline wrong.py --output .", "--output: '.' is a folder"),
    (
        "speedrun --baseline wrong.py --output x.py --preset paper",
        "--preset: invalid choice: 'paper'",
    ),
    ("speedrun --baseline wrong.py --output x.py --steps 0", "--steps: '0' must be a whole number"),
    ("speedrun --baseline wrong.py --output x.py --lr 2", "--lr: '2' must be an angle from"),
]

REFUSED = [
    ("theory wrong:gain --n 10 --alpha 0.1", "no parameter of the model"),
    ("theory wrong:complex_ --n 10 --alpha 0.1", "no parameter of the model"),
    ("theory wrong:net --n 10 --alpha 0.1 --constraint none", "no parameter of the model"),
    ("theory wrong:net --n 10 --alpha 0.1 --log-k nan", "log_solutions"),
    ("theory wrong:net --n 10 --alpha 0.1 --log-k=-1", "log_solutions"),
    ("theory wrong:net --n 10 --alpha 0.1 --log-k 1e9", "do not fit"),
    ("theory wrong:net --n 10 --alpha 0.1 --delta 5e-324", "samples"),
    ("theory nothing:net --n 10 --alpha 0.1", "cannot import 'nothing'"),
    ("plan --model llama-9b", "'llama-9b' is none of .*: give one such as"),
    ("plan --model wrong:number", "neither callable nor a module"),
    ("plan --model wrong:net --mesh tp=2", "tp_plan"),
    ("plan --model wrong:wrong_plan --mesh tp=2", "'diagonal'"),
    ("plan --model wrong:list_plan --mesh tp=2", "tp_plan"),
    ("plan --model wrong:scalar --mesh fsdp=2", "scalar"),
    ("plan --model wrong:no_copy --mesh fsdp=2", "cannot be copied"),
    ("plan --model wrong:net --optimizers adamw --plot x.bogus", "cannot write the picture"),
    ("bench --device cuda", "torch finds no CUDA device"),
    (
        "speedrun --baseline wrong.py --output x.py",
        "not the baseline that the command knows: .* give it",
    ),
    ("speedrun --baseline misspelt.py --output x.py", "it is not Python: .* give it"),
    (
        "speedrun --baseline nothing.py --output x.py",
        "cannot read nothing.py: .*; give --baseline",
    ),
]

USERS_CODE = [
    ("plan --model wrong:fails", "calling wrong:fails raised TypeError"),
    ("theory wrong:fails --n 10 --alpha 0.1", "calling wrong:fails raised TypeError"),
]


@each(USAGE)
def test_usage(typed, message, capsys):
    check_usage(typed, message, capsys)


@each(REFUSED)
def test_refused(typed, message, capsys):
    check_refused(typed, message, capsys)


@each(USERS_CODE)
def test_an_error_in_the_users_code_is_named_in_one_line(typed, message, capsys):
    check_blamed(typed, message, capsys)
