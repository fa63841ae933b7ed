"""Parameters that arrive without their model, as trainers pass them."""

import warnings

import pytest
import torch
from torch import nn

import nero
from nero.layout.arrival import model_of


class Conv1D(nn.Module):
    """Stores (in, out), as GPT-2's does."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 6))
        self.bias = nn.Parameter(torch.zeros(6))

    def forward(self, x):
        return x @ self.weight + self.bias


@pytest.fixture(autouse=True)
def _registered():
    nero.register_layout(Conv1D, {"weight": nero.layout.neurons(1), "bias": nero.layout.BIAS})


def model():
    torch.manual_seed(0)
    return nn.Sequential(Conv1D(), nn.LayerNorm(6), nn.ConvTranspose1d(6, 4, 2, groups=2))


def neurons_of(optimizer, net):
    """The layouts in the order of the model's parameters."""
    found = {
        param: (group["role"], group["neuron_dims"], group["num_groups"])
        for group in optimizer.param_groups
        for param in group["params"]
    }
    return [found[param] for param in net.parameters()]


EXPECTED = [
    ("neuron", (1,), 1),
    ("bias", None, 1),
    ("gain", None, 1),
    ("bias", None, 1),
    ("neuron", (1,), 2),
    ("bias", None, 1),
]


def trained(net, make):
    optimizer = make(net)
    for step in range(3):
        torch.manual_seed(step)
        optimizer.zero_grad()
        net[:2](torch.randn(5, 4)).square().sum().backward()
        optimizer.step()
    return [param.detach().clone() for param in net.parameters()]


DECAYED = [0, 2, 4]  # as trainers sort: matrices decay, vectors do not


def trainer_groups(net):
    params = [*net.parameters()]
    return [
        {"params": [p for i, p in enumerate(params) if i in DECAYED], "weight_decay": 0.0},
        {"params": [p for i, p in enumerate(params) if i not in DECAYED], "weight_decay": 0.0},
    ]


class TestIterators:
    @pytest.mark.parametrize("method", ["parameters", "named_parameters"])
    def test_lead_to_the_model(self, method):
        net = model()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            optimizer = nero.Nero(getattr(net, method)())
        assert neurons_of(optimizer, net) == EXPECTED
        assert optimizer.param_groups[0]["param_names"] == ["0.weight"]

    def test_names_beside_the_parameters_go_with_them(self):
        net = nero.annotate(model())
        names, params = zip(*net.named_parameters(), strict=True)
        optimizer = nero.Nero([{"params": [*params], "param_names": [*names]}])
        assert neurons_of(optimizer, net) == EXPECTED
        for group in optimizer.param_groups:
            for name, param in zip(group["param_names"], group["params"], strict=True):
                assert net.get_parameter(name) is param

    def test_train_as_the_model_does(self):
        expected = trained(model(), nero.Nero)
        for got, want in zip(
            trained(model(), lambda net: nero.Nero(net.parameters())), expected, strict=True
        ):
            assert torch.equal(got, want)

    @pytest.mark.parametrize(
        "params",
        [
            lambda net: iter([*net.parameters()]),
            lambda net: (p for p in net.parameters()),
            lambda net: net.named_parameters(prefix="a"),
            lambda net: net.parameters(recurse=False),
            lambda net: net.named_parameters(remove_duplicate=False),
            lambda net: net.buffers(),
        ],
        ids=["list", "own generator", "prefix", "not recursive", "duplicates", "buffers"],
    )
    def test_only_torchs_own_whole_ones(self, params):
        assert model_of(params(model())) is None

    def test_only_before_they_start(self):
        params = model().parameters()
        next(params)
        assert model_of(params) is None

    def test_only_those_of_the_base_class_that_yield_what_the_model_yields(self):
        net = WithBackbone()
        assert model_of(net.parameters()) is net
        assert model_of(nn.Module.named_parameters(net)) is None
        assert model_of(nn.Module.parameters(OnlyParameters())) is None

    def test_load_a_checkpoint_from_before_names(self):
        plain = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6))
        saved = nero.Nero([*plain.parameters()]).state_dict()
        for i, state in saved["state"].items():
            state["step"].fill_(i + 1)
        assert len(saved["param_groups"]) == 1
        optimizer = nero.Nero(plain.parameters())
        optimizer.load_state_dict(saved)
        steps = [int(optimizer.state[param]["step"]) for param in plain.parameters()]
        assert steps == [1, 2, 3, 4]


class WithBackbone(nn.Module):
    """Leaves its backbone out of training, by the method that ``parameters()`` calls."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Linear(8, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.backbone(x).relu())

    def named_parameters(self, *args, **kwargs):
        for name, param in super().named_parameters(*args, **kwargs):
            if not name.startswith("backbone."):
                yield name, param


class OnlyParameters(WithBackbone):
    """Leaves it out of ``parameters()`` alone."""

    named_parameters = nn.Module.named_parameters

    def parameters(self, recurse=True):
        return self.head.parameters()


class Groups(WithBackbone):
    named_parameters = nn.Module.named_parameters

    def parameters(self, recurse=True):
        return iter([{"params": [*self.head.parameters()], "lr": 0.1}])


BATCH = torch.randn(2, 8)


class TestModelsThatLeaveParametersOut:
    @pytest.mark.parametrize("cls", [WithBackbone, OnlyParameters])
    @pytest.mark.parametrize(
        "build",
        [
            nero.Nero,
            lambda net: nero.Nero(net.parameters()),
            lambda net: nero.Nero([{"params": net.parameters()}]),
            lambda net: nero.Nero(net, example=BATCH),
            lambda net: nero.Nero(nero.annotate(net, example=BATCH)),
            lambda net: nero.Nero(nero.param_groups(net)),
        ],
        ids=["model", "iterator", "group", "example", "annotated", "groups"],
    )
    def test_train_the_others_only(self, cls, build):
        net = cls()
        before = net.backbone.weight.detach().clone()
        optimizer = build(net)
        params = [param for group in optimizer.param_groups for param in group["params"]]
        assert {*params} == {net.head.weight, net.head.bias}
        assert torch.equal(net.backbone.weight, before)
        assert torch.allclose(net.head.weight.norm(dim=1), torch.ones(4))

    def test_are_described_so(self):
        shown = nero.describe(WithBackbone())
        assert [row.name for row in shown.rows] == ["head.weight", "head.bias"]
        assert shown.num_parameters == 36

    def test_as_parts_are_heard_no_more_than_torch_hears_them(self):
        net = nn.Sequential(WithBackbone(), nn.Linear(4, 2))
        assert len([*net.parameters()]) == 6
        assert len(nero.describe(net).rows) == 6

    def test_that_yield_groups_are_refused(self):
        with pytest.raises(TypeError, match=r"Groups.parameters\(\) yields dict"):
            nero.Nero(Groups())


class TestPartsOfAModel:
    def test_iterators_in_groups_lead_to_their_modules(self):
        net = model()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            optimizer = nero.Nero(
                [
                    {"params": net[:2].parameters(), "lr": 0.001},
                    {"params": net[2].parameters()},
                ]
            )
        assert neurons_of(optimizer, net) == EXPECTED
        assert [group["lr"] for group in optimizer.param_groups] == [0.001] * 3 + [0.01] * 2

    @pytest.mark.parametrize("params", [lambda m: m.parameters(), lambda m: [*m.parameters()]])
    def test_group_can_be_added_to_named_ones(self, params):
        net = model()
        optimizer = nero.Nero(net[:2])
        optimizer.add_param_group({"params": params(nero.annotate(net[2]))})
        assert neurons_of(optimizer, net) == EXPECTED


class TestAnnotated:
    def test_groups_of_a_trainer_keep_their_layouts(self):
        net = nero.annotate(model())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            optimizer = nero.Nero(trainer_groups(net))
        assert neurons_of(optimizer, net) == EXPECTED

    def test_train_as_the_model_does(self):
        expected = trained(model(), nero.Nero)
        got = trained(model(), lambda net: nero.Nero(trainer_groups(nero.annotate(net))))
        assert all(map(torch.equal, got, expected))

    def test_options_of_a_group_stay(self):
        net = nero.annotate(model())
        groups = [{"params": [*net.parameters()], "lr": 0.003}]
        assert {group["lr"] for group in nero.Nero(groups).param_groups} == {0.003}

    def test_group_that_is_added_later_is_split(self):
        net = nero.annotate(model())
        optimizer = nero.Nero([net[1].weight])
        optimizer.add_param_group({"params": [net[0].weight, net[0].bias]})
        assert [group["role"] for group in optimizer.param_groups] == ["gain", "neuron", "bias"]

    def test_example_is_watched(self):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.kernel = nn.Parameter(torch.randn(4, 6))

            def forward(self, x):
                return x @ self.kernel

        net = nero.annotate(Net(), example=torch.randn(2, 4))
        assert nero.Nero([*net.parameters()]).param_groups[0]["neuron_dims"] == (1,)

    def test_overrides_are_layouts_only(self):
        net = nero.annotate(model(), overrides={"0.weight": {"neuron_dims": (0,)}})
        assert nero.Nero([net[0].weight]).param_groups[0]["neuron_dims"] == (0,)
        with pytest.raises(TypeError, match="layouts only"):
            nero.annotate(model(), overrides={"0.weight": {"lr": 0.1}})

    def test_project_uses_it(self):
        net = nero.annotate(model())
        nero.project_([net[0].weight])
        assert torch.allclose(net[0].weight.norm(dim=0), torch.ones(6))


class Unregistered(nn.Module):
    """Stores (in, out), which nobody knows."""

    def __init__(self):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(4, 6))

    def forward(self, x):
        return x @ self.kernel


class TestAnnotateWarns:
    def heard(self, call):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        return [str(warning.message) for warning in caught]

    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"example": torch.randn(2, 5)},
            {"example": torch.randn(2, 4)},
            {"overrides": {"kernel": {"neuron_dims": (1,)}}},
        ],
        ids=["guess", "failed pass", "seen", "override"],
    )
    def test_as_the_optimizer_does(self, options):
        expected = self.heard(lambda: nero.Nero(Unregistered(), **options))
        assert self.heard(lambda: nero.annotate(Unregistered(), **options)) == expected
        is_known = "overrides" in options or options.get("example", BATCH).shape[1] == 4
        assert bool(expected) != is_known

    def test_of_contradictions(self):
        class Wrong(nn.Linear):
            def forward(self, x):
                return x @ self.weight

        message = "`weight` is registered as .* but the example uses it"
        with pytest.warns(nero.LayoutWarning, match=message):
            nero.annotate(Wrong(4, 4), example=torch.randn(2, 4))

    def test_once(self):
        net = Unregistered()
        with pytest.warns(nero.LayoutWarning, match="`kernel` are guessed"):
            nero.annotate(net)
        assert self.heard(lambda: nero.Nero([*net.parameters()])) == []


class TestBare:
    def test_one_warning_for_all(self):
        with pytest.warns(nero.LayoutWarning) as caught:
            nero.Nero(trainer_groups(model()))
        (warning,) = caught
        assert "2 parameter(s) came without their model, first number 0 of shape (4, 6)" in str(
            warning.message
        )
        assert warning.filename == __file__

    def test_names_are_used(self):
        with pytest.warns(nero.LayoutWarning, match="first `0.weight`"):
            nero.Nero([*model().named_parameters()])

    @pytest.mark.parametrize(
        "group",
        [{"neuron_dims": (1,)}, {"role": "neuron"}, {"role": None}],
        ids=["dims", "role", "from shapes, said"],
    )
    def test_no_warning_where_the_group_says(self, group):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            nero.Nero([{"params": [nn.Parameter(torch.randn(4, 6))], **group}])

    def test_no_warning_for_what_has_no_fan_in(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            nero.Nero([nn.Parameter(torch.randn(6)), nn.Parameter(torch.randn(1, 6, 1, 1))])

    @pytest.mark.parametrize(
        "param",
        [torch.ones(1, 4, 1, 1), torch.full((1, 1, 4), 1e-6), torch.ones(1, 8), torch.ones(4, 8)],
        ids=["gain", "layer scale", "temperature", "constant matrix"],
    )
    def test_factors_are_not_destroyed(self, param):
        param = nn.Parameter(param)
        start = param.detach().clone()
        optimizer = nero.Nero([param], bias_scale=0.01)
        param.grad = torch.randn_like(param) * 1e-9
        optimizer.step()
        assert ((param - start).abs() <= 0.02 * start.abs().clamp(min=0.01)).all()


class TestBalanced:
    def test_shapes_are_said_to_decide(self):
        with pytest.warns(nero.LayoutWarning, match="came without their model"):
            nero.Balanced(torch.optim.SGD(model().parameters(), lr=0.1))

    def test_layouts_left_on_parameters_are_used(self):
        net = nero.annotate(model())
        nero.Balanced(torch.optim.SGD([net[0].weight], lr=0.1))
        assert torch.allclose(net[0].weight.norm(dim=0), torch.ones(6))

    def test_mixed_groups_are_refused(self):
        net = nero.annotate(model())
        with pytest.raises(nero.LayoutError, match="param_groups"):
            nero.Balanced(torch.optim.SGD(net.parameters(), lr=0.1))
