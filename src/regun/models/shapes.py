"""What a model must know of its inputs and outputs before it is built."""

from regun.errors import RegunError

ImageSize = tuple[int, int, int]
"""Channels, height and width of the images a model is fed (after any resizing)."""


def check_shapes(num_classes: int, image_size: ImageSize | None) -> None:
    """Refuse fewer than two classes and sizes that are not three positive numbers."""
    if num_classes < 2:
        raise RegunError(f"num_classes is {num_classes}; a classifier needs at least 2 classes.")
    if image_size is not None and (len(image_size) != 3 or min(image_size) < 1):
        raise RegunError(f"image_size is {image_size}; give (channels, height, width), all at least 1.")


def require_image(name: str, image_size: ImageSize | None) -> ImageSize:
    """The image size, or an error for a model that cannot do without one."""
    if image_size is None:
        raise RegunError(
            f"{name} works on images, but the data has no image size (got None). "
            "Give image_size=(channels, height, width), or use the model 'mlp' for feature vectors."
        )
    return image_size
