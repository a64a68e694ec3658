"""Image models (torchvision)."""

import torchvision.models as tv

from common import classify  # before torchvision


def resnet50_fp32(batch_size):
    return classify(tv.resnet50(), batch_size, optimizer="sgd", precision="fp32")


def resnet50_tf32(batch_size):
    return classify(tv.resnet50(), batch_size, optimizer="sgd", precision="tf32")


def resnet50_bf16amp(batch_size):
    return classify(tv.resnet50(), batch_size, optimizer="sgd", precision="bf16-amp")


def resnet50_fp16amp_nhwc(batch_size):
    return classify(
        tv.resnet50(), batch_size, optimizer="sgd", precision="fp16-amp", channels_last=True
    )


def vit_b16_bf16amp(batch_size):
    return classify(tv.vit_b_16(), batch_size, precision="bf16-amp")


def efficientnet_v2_s_bf16amp(batch_size):
    return classify(tv.efficientnet_v2_s(), batch_size, precision="bf16-amp")


def vgg16_tf32(batch_size):
    return classify(tv.vgg16(), batch_size, optimizer="sgd", precision="tf32")
