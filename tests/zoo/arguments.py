"""The arguments that many models take: ``make_x`` makes what is called ``x``."""

import torch
from torch import Tensor

from tests.zoo.rarities import BATCH, FRAMES, GRID, TOKENS, data, ids
from tests.zoo.sizes import Sizes, number


class Arguments(Sizes):
    """Texts, images, videos and sounds."""

    # text

    def make_input_ids(self) -> Tensor:
        return ids(BATCH, TOKENS)

    make_decoder_input_ids = make_token_type_ids = make_qformer_input_ids = make_input_ids
    make_input_shape_ids = make_input_pronunciation_ids = make_input_ids
    make_protein_input_ids = make_classes_input_ids = make_tasks_input_ids = make_input_ids
    make_task_inputs = make_input_ids

    def make_attention_mask(self) -> Tensor:
        return torch.ones(BATCH, TOKENS, dtype=torch.long)

    make_classes_attention_mask = make_tasks_attention_mask = make_attention_mask

    def make_bbox(self) -> Tensor:
        return ids(BATCH, TOKENS, 4)

    def make_inputs_embeds(self) -> Tensor:
        return data(BATCH, TOKENS, self.hidden_size(self.text))

    make_query_embeds = make_noise_embeds = make_inputs_embeds

    # images

    def make_pixel_values(self) -> Tensor:
        height, width = self.image_size()
        if self.variant == "image":
            return data(BATCH, self.channels(), height, width)
        if self.variant == "frames":
            frames = number(self.vision, "num_frames", "frames_per_clip", default=FRAMES)
            return data(BATCH, frames, self.channels(), height, width)
        if self.variant == "patches":
            return self.make_hidden_states()
        patch = self.channels() * self.patch_size() ** 2
        return data(BATCH, GRID * GRID, patch)

    make_image_pixel_values = make_pixel_values
    make_prompt_pixel_values = make_prompt_masks = make_pixel_values

    def make_image(self) -> Tensor:
        return data(BATCH, 3, 224, 224)

    def make_hidden_states(self) -> Tensor:
        times = number(self.vision, "temporal_patch_size", default=1)
        return data(GRID * GRID, self.channels() * times * self.patch_size() ** 2)

    def make_grid_thw(self) -> Tensor:
        return torch.tensor([[1, GRID, GRID]])

    make_image_grid_thw = make_video_grid_thw = make_grid_thw

    def make_pixel_values_videos(self) -> Tensor:
        if "video_grid_thw" in self.signature:
            return self.make_hidden_states()
        frames = number(self.vision, "num_frames", "frames_per_clip", default=FRAMES)
        return data(BATCH, frames, self.channels(), *self.image_size())

    def make_image_sizes(self) -> Tensor:
        return torch.tensor([self.image_size()] * BATCH)

    make_target_sizes = make_image_sizes

    def make_mm_token_type_ids(self) -> Tensor:
        return torch.zeros(BATCH, TOKENS, dtype=torch.long)

    def make_bool_masked_pos(self) -> None:
        return None

    # sound

    def make_input_features(self) -> Tensor:
        bins = number(
            self.audio,
            *("num_mel_bins", "input_feat_per_channel", "n_mels", "feature_size", "input_size"),
            *("mel_bins", "input_dim", "num_mel_filters"),
            default=number(self.config, "num_mel_bins", "feature_size", default=80),
        )
        frames = 2 * number(self.audio, "max_source_positions", default=0) or 256
        if self.variant == "image":
            return data(BATCH, bins, min(frames, 3000))
        return data(BATCH, min(frames, 3000), bins)

    make_audio_mel = make_audio_input_features = make_input_features

    def make_input_values(self) -> Tensor:
        channels = number(self.config, "audio_channels", default=0)
        if self.variant in ("frames", "sequence") or channels:
            return data(BATCH, channels or 1, 16000)
        return data(BATCH, 16000)

    def make_audio_mel_mask(self) -> Tensor:
        return torch.zeros(BATCH, self.make_audio_mel().shape[1], dtype=torch.bool)

    def make_latents(self) -> Tensor:
        return data(BATCH, self.hidden_size(self.config), TOKENS)

    def make_audio_codes(self) -> Tensor:
        return ids(BATCH, number(self.config, "num_quantizers", "num_codebooks", default=8), TOKENS)
