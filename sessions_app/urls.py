from django.urls import path

from sessions_app import views

urlpatterns = [
    path("sessions/", views.Sessions.as_view(), name="sessions"),
    path("sessions/<str:public_id>/", views.OneSession.as_view(), name="session"),
    path("sessions/<str:public_id>/messages/", views.Messages.as_view(), name="messages"),
]
