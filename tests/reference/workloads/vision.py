"""Image and video models of torchvision."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from training import Step, classify, step_of

import torchvision.models as tv  # isort: skip  (after training, which defines its operators)


def resnet18_bf16_amp_nhwc(batch_size: int) -> Step:
    return classify(tv.resnet18(), batch_size, channels_last=True)


def resnet101_fp16_amp(batch_size: int) -> Step:
    return classify(tv.resnet101(), batch_size, "fp16-amp", clip=True)


def wide_resnet50_tf32_nhwc(batch_size: int) -> Step:
    return classify(tv.wide_resnet50_2(), batch_size, "tf32", channels_last=True)


def resnet34_accumulate4_bf16_amp(batch_size: int) -> Step:
    return classify(tv.resnet34(), batch_size, "bf16-amp", "adamw", accumulate=4)


def resnet50_cifar_fp32(batch_size: int) -> Step:
    return classify(tv.resnet50(num_classes=10), batch_size, "fp32", size=(32, 32), classes=10)


def resnext50_bf16_amp(batch_size: int) -> Step:
    return classify(tv.resnext50_32x4d(), batch_size)


def mobilenet_v3_large_bf16_amp(batch_size: int) -> Step:
    return classify(tv.mobilenet_v3_large(), batch_size, "bf16-amp", "rmsprop")


def mobilenet_v2_fp16_amp_nhwc(batch_size: int) -> Step:
    return classify(tv.mobilenet_v2(), batch_size, "fp16-amp", channels_last=True)


def mnasnet_fp32(batch_size: int) -> Step:
    return classify(tv.mnasnet1_0(), batch_size, "fp32")


def shufflenet_v2_tf32(batch_size: int) -> Step:
    return classify(tv.shufflenet_v2_x1_0(), batch_size, "tf32")


def densenet121_bf16_amp(batch_size: int) -> Step:
    return classify(tv.densenet121(), batch_size)


def densenet121_tf32(batch_size: int) -> Step:
    return classify(tv.densenet121(), batch_size, "tf32")


def efficientnet_b0_bf16(batch_size: int) -> Step:
    return classify(tv.efficientnet_b0(), batch_size, "bf16", "adamw")


def efficientnet_b3_fp16_amp(batch_size: int) -> Step:
    return classify(tv.efficientnet_b3(), batch_size, "fp16-amp", size=(300, 300))


def regnet_y_8gf_bf16_amp(batch_size: int) -> Step:
    return classify(tv.regnet_y_8gf(), batch_size)


def convnext_tiny_bf16_amp(batch_size: int) -> Step:
    return classify(tv.convnext_tiny(), batch_size, "bf16-amp", "adamw")


def convnext_small_tf32_nhwc(batch_size: int) -> Step:
    return classify(tv.convnext_small(), batch_size, "tf32", "adamw", channels_last=True)


def swin_t_bf16_amp(batch_size: int) -> Step:
    return classify(tv.swin_t(), batch_size, "bf16-amp", "adamw")


def swin_v2_t_fp32(batch_size: int) -> Step:
    return classify(tv.swin_v2_t(), batch_size, "fp32", "adamw", size=(256, 256))


def vit_l16_bf16_amp(batch_size: int) -> Step:
    return classify(tv.vit_l_16(), batch_size, "bf16-amp", "adamw-fused")


def vit_b32_fp32(batch_size: int) -> Step:
    return classify(tv.vit_b_32(), batch_size, "fp32", "adamw")


def maxvit_t_bf16_amp(batch_size: int) -> Step:
    return classify(tv.maxvit_t(), batch_size, "bf16-amp", "adamw")


def vgg16_bf16_amp(batch_size: int) -> Step:
    return classify(tv.vgg16(), batch_size)


def vgg19_bn_fp32(batch_size: int) -> Step:
    return classify(tv.vgg19_bn(), batch_size, "fp32")


def vgg11_fp16_amp_nhwc(batch_size: int) -> Step:
    return classify(tv.vgg11(), batch_size, "fp16-amp", channels_last=True)


def alexnet_tf32(batch_size: int) -> Step:
    return classify(tv.alexnet(), batch_size, "tf32", "sgd")


def squeezenet_bf16_amp(batch_size: int) -> Step:
    return classify(tv.squeezenet1_1(), batch_size)


def googlenet_bf16_amp(batch_size: int) -> Step:
    return classify(tv.googlenet(aux_logits=False, init_weights=False), batch_size)


def inception_v3_tf32(batch_size: int) -> Step:
    model = tv.inception_v3(aux_logits=False, init_weights=False)
    return classify(model, batch_size, "tf32", size=(299, 299))


def r3d_18_bf16_amp(batch_size: int) -> Step:
    return classify(tv.video.r3d_18(num_classes=400), batch_size, size=(16, 112, 112), classes=400)


def r2plus1d_18_tf32(batch_size: int) -> Step:
    model = tv.video.r2plus1d_18(num_classes=400)
    return classify(model, batch_size, "tf32", size=(16, 112, 112), classes=400)


def mvit_v2_s_bf16_amp(batch_size: int) -> Step:
    model = tv.video.mvit_v2_s(num_classes=400)
    return classify(model, batch_size, "bf16-amp", "adamw", size=(16, 224, 224), classes=400)


def _segment(model: nn.Module, batch_size: int, precision: str, size: int = 512) -> Step:
    x = torch.randn(batch_size, 3, size, size)
    y = torch.randint(21, (batch_size, size, size))

    def loss_of(model: nn.Module) -> Tensor:
        return functional.cross_entropy(model(x)["out"].float(), y)

    return step_of(model, loss_of, precision, "momentum")


def deeplab_v3_resnet50_bf16_amp(batch_size: int) -> Step:
    model = tv.segmentation.deeplabv3_resnet50(weights=None, weights_backbone=None, num_classes=21)
    return _segment(model, batch_size, "bf16-amp")


def fcn_resnet50_tf32(batch_size: int) -> Step:
    model = tv.segmentation.fcn_resnet50(weights=None, weights_backbone=None, num_classes=21)
    return _segment(model, batch_size, "tf32")
