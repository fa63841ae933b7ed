"""The arguments that few models take."""

import torch
from torch import Tensor

from tests.zoo.arguments import Arguments
from tests.zoo.rarities import BATCH, GRID, TOKENS, data, ids
from tests.zoo.sizes import number, value


class RareArguments(Arguments):
    """Time series, boxes, states and actions, and so on."""

    # time series

    def make_past_values(self) -> Tensor:
        length = number(self.config, "context_length", "horizon_length", default=64)
        lags = value(self.config, "lags_sequence", default=None)
        if lags:
            length = number(self.config, "context_length", "prediction_length", default=24)
            return data(BATCH, length + max(lags))
        channels = number(self.config, "num_input_channels", default=1)
        return data(BATCH, length, channels)

    def make_past_time_features(self) -> Tensor:
        features = number(self.config, "num_time_features", default=0)
        return data(BATCH, self.make_past_values().shape[1], features)

    def make_past_observed_mask(self) -> Tensor:
        return torch.ones_like(self.make_past_values())

    def make_future_values(self) -> Tensor | None:
        length = number(self.config, "prediction_length", default=24)
        return data(BATCH, length) if value(self.config, "lags_sequence", default=None) else None

    def make_future_time_features(self) -> Tensor:
        length = number(self.config, "prediction_length", default=24)
        return data(BATCH, length, number(self.config, "num_time_features", default=0))

    # what few models take

    def make_inputs(self) -> Tensor:
        return data(BATCH, TOKENS, self.config.d_model)

    def make_spatial_shapes(self) -> Tensor:
        return torch.tensor([[GRID, GRID]] * BATCH)

    def make_pixel_attention_mask(self) -> Tensor:
        return torch.ones(BATCH, GRID * GRID, dtype=torch.long)

    def make_encoder_hidden_states(self) -> Tensor:
        return data(BATCH, TOKENS, number(self.config, "encoder_hidden_size", default=768))

    def make_classes_structure(self) -> Tensor:
        return torch.tensor([1] * BATCH)

    def make_merge_sizes(self) -> Tensor:
        return torch.tensor([1])

    make_image_merge_sizes = make_video_merge_sizes = make_merge_sizes

    def make_freq(self) -> list[int]:
        return [0] * BATCH

    def make_past_values_padding(self) -> Tensor:
        return torch.zeros(BATCH, self.make_past_values().shape[1])

    def make_visual_feats(self) -> Tensor:
        return data(BATCH, TOKENS, self.config.visual_feat_dim)

    def make_visual_pos(self) -> Tensor:
        return data(BATCH, TOKENS, self.config.visual_pos_dim)

    def make_visual_embeds(self) -> Tensor:
        return data(BATCH, TOKENS, self.config.visual_embedding_dim)

    def make_states(self) -> Tensor:
        return data(BATCH, TOKENS, self.config.state_dim)

    def make_actions(self) -> Tensor:
        return data(BATCH, TOKENS, self.config.act_dim)

    def make_rewards(self) -> Tensor:
        return data(BATCH, TOKENS, 1)

    make_returns_to_go = make_rewards

    def make_timesteps(self) -> Tensor:
        return ids(BATCH, TOKENS)

    def make_entity_ids(self) -> Tensor:
        return ids(BATCH, 3)

    def make_entity_position_ids(self) -> Tensor:
        return ids(BATCH, 3, 5)

    def make_xpath_tags_seq(self) -> Tensor:
        return ids(BATCH, TOKENS, self.config.max_depth)

    make_xpath_subs_seq = make_xpath_tags_seq

    def make_high_res_pixel_values(self) -> Tensor:
        return data(BATCH, 3, 1024, 1024)

    def make_action_embeds(self) -> Tensor:
        return data(BATCH, TOKENS, number(self.config, "max_action_dim", default=32))

    def make_context_hidden_states(self) -> Tensor:
        return data(BATCH, TOKENS, self.hidden_size(self.config))

    def make_structure_feats(self) -> None:
        return None

    def make_input_boxes(self) -> Tensor:
        return data(BATCH, 1, 4)

    def make_input_points(self) -> Tensor:
        return data(BATCH, 1, 1, 2)

    def make_input_labels(self) -> Tensor:
        return torch.ones(BATCH, 1, 1, dtype=torch.long)
