"""`outlay recipe`: models by name, and the training steps written for them."""

from __future__ import annotations

import click

from outlay.cli.options import json_option, model_options, print_document, settings_of


@click.group("recipe")
def command() -> None:
    """Show the models and recipes that come with outlay, and write a training step.

    A recipe is a readable file with its settings at the top. What `show` prints is what is traced.

    \b
    Example:
      outlay recipe models
      outlay recipe list
      outlay recipe show --model llama-3.1-8b --method qlora --set tokens=2048 > step.py
      outlay trace step.py:training_step --gpu "RTX 4090"
    """


@command.command("models")
@json_option
def models(as_json: bool) -> None:
    """List the bundled models and the recipes each can be trained with.

    Any other is named hf:OWNER/NAME or hf:FOLDER (its config.json), timm:NAME, torchvision:NAME.

    \b
    Example:
      outlay recipe models
      outlay predict qwen3-8b --method lora --gpu L4
    """
    from outlay.models.model import bundled_models

    if as_json:
        from outlay.report.recipes import models_document

        print_document(models_document(bundled_models()))
        return
    from outlay.report.console import Page
    from outlay.report.recipes import models_table

    page = Page()
    page.print(models_table(bundled_models(), page.width))
    page.print("* Needs no torch: the step is bundled as the recipe has it.")


@command.command("list")
@click.argument("method", required=False)
@json_option
def list_(method: str | None, as_json: bool) -> None:
    """List the recipes, or the settings of one.

    \b
    Example:
      outlay recipe list
      outlay recipe list qlora
    """
    from outlay.models.recipe import bundled_recipes, find_recipe

    recipes = bundled_recipes() if method is None else (find_recipe(method),)
    if as_json:
        from outlay.report.recipes import recipes_document

        print_document(recipes_document(recipes))
        return
    from outlay.report.console import Page
    from outlay.report.recipes import recipes_table, settings_table

    page = Page()
    page.print(
        recipes_table(recipes, page.width)
        if method is None
        else settings_table(recipes[0], page.width)
    )


@command.command("show")
@click.argument("method_name", metavar="[METHOD]", required=False)
@click.option("--model", "model_name", metavar="NAME", default="llama-3.2-1b", show_default=True)
@click.option("--tokens", metavar="N", help="The same as --set tokens=N.")
@model_options
@json_option
def show(
    method_name: str | None,
    model_name: str,
    tokens: str | None,
    method: str | None,
    settings: tuple[str, ...],
    trust_remote_code: bool,
    as_json: bool,
) -> None:
    """Print a recipe's file for a model: the step that is traced, to keep and to change.

    \b
    Example:
      outlay recipe show qlora --model llama-3.1-8b --tokens 2048 > step.py
      outlay recipe show --model hf:./my-model --method full --set optimizer=adamw-8bit
    """
    from outlay.models.model import find_model
    from outlay.models.recipe import recipe_for, rendered_step

    if method is not None and method_name is not None and method != method_name:
        raise click.UsageError(f"{method_name} and --method {method} exclude each other: give one.")
    words = settings if tokens is None else (f"tokens={tokens}", *settings)
    model = find_model(model_name, trust_remote_code=trust_remote_code)
    chosen = recipe_for(model, method or method_name)
    text = rendered_step(model, chosen.method, settings_of(words))
    if as_json:
        from outlay.report.recipes import StepDocument

        print_document(StepDocument(model=model.name, method=chosen.method, text=text))
    else:
        click.echo(text, nl=False)
